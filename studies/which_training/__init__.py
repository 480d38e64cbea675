"""Which way to train across datacenters is fastest where: tokens a second, loss against time, and the page."""
