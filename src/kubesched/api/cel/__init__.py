"""CEL, the expression language of Kubernetes.

``cel-expr-python`` (Google's C++ implementation) parses and checks. :mod:`.program` evaluates the checked tree in
Python, with the functions and types of Kubernetes, upstream's messages, and the cost counted against its limit.

Errors and values are in :mod:`.meter` and :mod:`.values`, which load little; :mod:`.environment` loads the rest. A
scheduler without CEL selectors never imports it.
"""
