"""What-if: changes that are tried on a copy of the cluster, and carried out on the embedded one.

WhatIf ──▶ :mod:`.question` (checks) ──▶ :mod:`.trials` ──saved cluster──▶ :mod:`.process` (:mod:`.run`, :mod:`.compared`) ──▶ Outcome
                                                 └──apply──▶ :mod:`.deeds` on the store
"""
