"""Dashboard: a page that shows the scheduler at work, its documents, and the server that offers both.

    :mod:`.schema`  documents of the API          :mod:`.source`  port: a cluster or a recording that can be shown

The page is built from the folder ``ui`` of the checkout. It has no logic of its own about scheduling: everything it shows comes
from the documents.
"""
