"""Questions of planners, answered by the scheduler: how many more pods fit, which nodes to buy, which can go."""
