// What the server is asked. Same origin, so Airflow's session goes along by itself.

/** `isWait`: the server has nothing to show yet, and asks for patience. */
export class Refusal extends Error {
  constructor(status, told, isWait = false) {
    super(told);
    this.status = status;
    this.isWait = isWait;
  }
}

/** The JSON of `api/<path>`; `query` leaves out what is empty. Throws `Refusal`. */
export async function get(path, query = {}, signal = undefined) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== "" && one !== null && one !== undefined && one !== false) params.append(name, one);
    }
  }
  const text = params.toString();
  return answerOf(await ask(`api/${path}${text ? `?${text}` : ""}`, { signal }));
}

/** Ask for a change. Throws `Refusal`. */
export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Txn-Engine-Request": "1" };
  return answerOf(await ask(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function ask(path, options) {
  try {
    return await fetch(new URL(path, document.baseURI), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "Airflow's api-server does not answer.");
  }
}

async function answerOf(response) {
  let content = null;
  try {
    content = await response.json();
  } catch {
    throw new Refusal(response.status, `The api-server answered ${response.status}, and not as this page expects.`);
  }
  if (!response.ok) throw new Refusal(response.status, told(content, response.status), response.headers.has("Retry-After"));
  return content;
}

function told(content, status) {
  return typeof content?.detail === "string" ? content.detail : `The api-server answered ${status}.`;
}
