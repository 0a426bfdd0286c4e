"""The transaction and group coordinators: libraries over their logs, not processes. Anybody may drive any
transaction.
"""
