"""Evidence: read a bundle without trusting it, recompute everything it says, show it, compare two."""

from lanewise.evidence.bundle import Bundle, open_bundle
from lanewise.evidence.compare import Comparison, compare
from lanewise.evidence.documents import check_documents
from lanewise.evidence.page import page
from lanewise.evidence.reasons import CODES, Reason
from lanewise.evidence.verify import verify

__all__ = ["CODES", "Bundle", "Comparison", "Reason", "check_documents", "compare", "open_bundle", "page", "verify"]
