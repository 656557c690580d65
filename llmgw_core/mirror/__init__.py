"""The store of weights on the controller's machine, and the server that the nodes fetch from."""
