"""The production broker on simulated machines: started, stopped, killed and observed."""
