"""Verifiers with a mistake made on purpose, which a test must notice."""

from lantern.acceptance.exact import Exact


class NoSubtraction(Exact):
    """Biased: draws from p itself after a rejection."""

    def judge(self, p, q, x, site):
        return super().judge(p, q, x, site)[0], p
