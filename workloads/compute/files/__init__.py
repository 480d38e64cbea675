"""Files of what a stage has computed: its gradients, and its state."""
