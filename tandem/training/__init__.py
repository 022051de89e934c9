"""Training loops for those who do not want to write their own: Trainer, metrics, logs, and the page of a run."""

from tandem.training.history import History
from tandem.training.logs import CSVLog, JSONLog, TensorBoardLog
from tandem.training.metrics import AUC, F1, Accuracy, Mean, Perplexity
from tandem.training.page import write_page
from tandem.training.trainer import Callback, EarlyStopping, Trainer

__all__ = [
    "AUC", "F1", "Accuracy", "CSVLog", "Callback", "EarlyStopping", "History", "JSONLog", "Mean", "Perplexity", "TensorBoardLog",
    "Trainer", "write_page",
]  # fmt: skip
