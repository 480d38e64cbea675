"""How property tests run: for what they find, not for how fast, since tests run side by side."""

from hypothesis import settings

settings.register_profile("wanbed", deadline=None)
settings.load_profile("wanbed")
