"""Access the kernel through netlink, sysctls, /proc and namespaces."""
