"""Everything that goes through netlink, sysctls and namespaces."""
