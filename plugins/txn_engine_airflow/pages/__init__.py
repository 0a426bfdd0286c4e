"""The pages: what Airflow's api-server shows of a store, at `/txn-engine/`.

app.py           the FastAPI app: routes, headers, error pages
auth.py          who may read, see records, abort; and what a mutating request must carry
store_poller.py  one background thread a process: looks at the store every few seconds; requests read what it saw
troubles.py      what an error tells those who may view the pages
moment.py        one look at the store, as a value
tails.py         the last rows of an internal log, for time lines and history
views_*.py       what a page shows, computed from a `Moment`
routes_*.py      those as JSON, the HTML around them, and Abort
routing.py       how the method of a request is matched
static/          HTML, CSS and ES modules as they are written: there is no build step
"""
