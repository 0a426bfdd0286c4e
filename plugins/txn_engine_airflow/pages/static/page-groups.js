// Groups: all of them.

import { get } from "./api.js";
import { plural } from "./format.js";
import { GROUP_COLUMNS, LAG_NOTE, groupRow } from "./page-overview.js";
import { damageTable, table } from "./pieces.js";

export const load = (_, signal) => get("groups", {}, signal);

export function render({ groups, found, damage }) {
  return {
    lede: plural(found, "group"),
    content: [
      damageTable(damage),
      table({
        caption: "Consumer groups", note: LAG_NOTE, columns: GROUP_COLUMNS, rows: groups.map(groupRow), found,
        empty: "No group has committed an offset.",
      }),
    ],
  };
}
