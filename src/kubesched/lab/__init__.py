"""Laboratory: the scheduler in virtual time (:mod:`.simulate`), many runs (:mod:`.sweeps`), measurements (:mod:`.bench`), recorded decisions
(:mod:`.conformance`) and recorded workloads (:mod:`.traces`)."""
