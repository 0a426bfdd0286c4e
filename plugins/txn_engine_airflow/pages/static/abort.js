// The Abort button, its dialog, and what comes of it.

import { post } from "./api.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { withCode } from "./pieces.js";

export function abortButton(line, text = "Abort") {
  return h(
    "button",
    {
      type: "button",
      class: "button small danger",
      "data-action": "abort",
      "data-key": `${line.producer_id} ${line.producer_epoch}`, // the id's next transaction has a button of its own
      "data-id": line.transactional_id,
      "data-producer-id": line.producer_id,
      "data-producer-epoch": line.producer_epoch,
      "aria-label": `Abort the transaction of ${line.transactional_id}`,
    },
    text,
  );
}

export function abortHangingButton(hanging) {
  return h(
    "button",
    {
      type: "button",
      class: "button small danger",
      "data-action": "abort-hanging",
      "data-topic": hanging.topic,
      "data-partition": hanging.partition,
      "data-start-offset": hanging.start_offset,
      "data-age": duration(hanging.duration_ms),
      "aria-label": `Abort the hanging transaction on ${hanging.topic}-${hanging.partition} at offset ${hanging.start_offset}`,
    },
    "Abort",
  );
}

/** What the two buttons do, by their `data-action`. `done(text)` is called once it is over. */
export function abortActions(done) {
  return {
    abort: ({ dataset }) =>
      confirm({
        title: "Abort this transaction?",
        what: dataset.id,
        told:
          "What it wrote is thrown away for good; what its producer still writes to it is refused, and it can no longer " +
          "commit it. The producer is not shut out: once it has aborted on its side, it can begin a new transaction. " +
          "`txn-engine transactions fence` shuts it out. If the transaction was decided meanwhile, nothing happens.",
        path: "abort",
        body: {
          transactional_id: dataset.id,
          producer_id: Number(dataset.producerId),
          producer_epoch: Number(dataset.producerEpoch),
        },
        after: `Aborted: ${dataset.id}`,
        done,
      }),
    "abort-hanging": ({ dataset }) =>
      confirm({
        title: "Abort this hanging transaction?",
        what: `${dataset.topic}-${dataset.partition}, from offset ${dataset.startOffset}, silent for ${dataset.age}`,
        told:
          "No coordinator knows it, so nothing else will end it. What it wrote in this partition is thrown away for good. " +
          "If it ended meanwhile, nothing happens.",
        path: "abort-hanging",
        body: {
          topic: dataset.topic,
          partition: Number(dataset.partition),
          start_offset: Number(dataset.startOffset),
        },
        after: `Aborted on ${dataset.topic}-${dataset.partition}`,
        done,
      }),
  };
}

function confirm({ title, what, told, path, body, after, done }) {
  const understood = h("input", { type: "checkbox", id: "understood", name: "understood" });
  const act = h("button", { type: "submit", class: "button danger solid", disabled: true }, "Abort the transaction");
  const trouble = h("p", { class: "strong-bad", role: "alert" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "abort-title" }, title),
    h("p", { class: "code wrap" }, what),
    h("p", { id: "abort-told" }, withCode(told)),
    h("p", { class: "quiet" }, "Your name and this abort are written to Airflow's audit log."),
    h(
      "div",
      { class: "check-line" },
      understood,
      h("label", { for: "understood" }, "I know whose transaction this is, and that its records will be lost."),
    ),
    trouble,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "button", class: "button", "data-close": "" }, "Keep it"),
      act,
    ),
  );
  const dialog = h("dialog", { "aria-labelledby": "abort-title", "aria-describedby": "abort-told" }, form);
  understood.addEventListener("change", () => {
    act.disabled = !understood.checked;
  });
  form.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    act.disabled = true;
    trouble.textContent = "";
    try {
      await post(path, body);
      dialog.close();
      done(after);
    } catch (error) {
      trouble.textContent = error.message;
      act.disabled = !understood.checked;
    }
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    const isLost = document.activeElement === document.body; // the button that opened this is gone
    if (isLost) document.getElementById("main").focus();
  });
  document.getElementById("dialogs").append(dialog);
  dialog.showModal();
}
