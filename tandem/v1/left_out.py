"""Classic names that have no counterpart, and how to write what they did: what `v1.<name>` says."""

_LAYERS = "build layers from variables and tf.nn, or use td.nn modules and td.compile"
_CELLS = "run the cell in tf.scan(step, inputs, initializer=state), or use td.nn.LSTM and td.nn.GRU"
_READERS = (
    "read files by td.data.DataLoader and feed its batches, or enqueue them: tf.FIFOQueue with tf.train.QueueRunner"
)
_SUMMARIES = "fetch values and write them by td.utils.tensorboard.SummaryWriter, or td.training.TensorBoardLog"

ADVICE = {
    "TensorArray": "collect by tf.scan or tf.map_fn, which stack what each iteration gives; or append to a list and tf.stack it",
    "layers": _LAYERS,
    "contrib": _LAYERS,
    "keras": "use td.nn modules, or keras.Model-like loops by td.training.Trainer",
    "estimator": "use td.training.Trainer",
    "summary": _SUMMARIES,
    "scalar_summary": _SUMMARIES,
    "histogram_summary": _SUMMARIES,
    "merge_all_summaries": _SUMMARIES,
    "nn.dynamic_rnn": _CELLS,
    "nn.static_rnn": _CELLS,
    "nn.bidirectional_dynamic_rnn": _CELLS,
    "nn.rnn_cell": _CELLS,
    "nn.rnn": _CELLS,
    "train.string_input_producer": _READERS,
    "train.slice_input_producer": _READERS,
    "train.input_producer": _READERS,
    "train.range_input_producer": _READERS,
    "train.batch": _READERS,
    "train.batch_join": _READERS,
    "data": _READERS,
    "train.get_checkpoint_state": "tf.train.latest_checkpoint gives the path of the newest",
    "train.import_meta_graph": "build the graph again, and restore its variables by tf.train.Saver",
    "train.shuffle_batch": _READERS + "; tf.RandomShuffleQueue shuffles",
    "TextLineReader": _READERS,
    "WholeFileReader": _READERS,
    "TFRecordReader": _READERS,
    "decode_csv": _READERS,
    "train.SummaryWriter": _SUMMARIES,
    "train.Supervisor": "use td.training.Trainer, which saves and resumes; or tf.train.Saver by hand",
    "train.MonitoredTrainingSession": "use td.training.Trainer, which saves and resumes; or tf.train.Saver by hand",
    "app": "call main() under `if __name__ == '__main__':`, and parse arguments by argparse",
    "flags": "parse arguments by argparse",
    "gfile": "use open() and pathlib",
    "logging": "use Python's logging, or print",
    "losses": "use tf.nn's: softmax_cross_entropy_with_logits, sigmoid_cross_entropy_with_logits, l2_loss, and tf.reduce_mean",
    "metrics": "use td.training's metrics on fetched values, or tf.reduce_mean(tf.cast(tf.equal(a, b), tf.float32))",
    "sequence_mask": "write tf.less(tf.range(length), tf.expand_dims(lengths, -1))",
    "boolean_mask": "multiply by the mask, or tf.gather rows by numbers; sizes that depend on values run in td.compile and eagerly",
    "python_io": _READERS,
    "image": "use td.nn.functional.interpolate, td.flip and td.data's transforms",
    "make_template": "use variable_scope(..., reuse=AUTO_REUSE)",
    "SparseTensor": "use dense tensors with a mask, or td.sparse_coo_tensor outside of graphs",
}


def refuse(module: str, name: str):
    """The error of an attribute that is not there, with the way to write it where there is one."""
    short = f"{module.removeprefix('tandem.v1').lstrip('.')}.{name}".lstrip(".")
    advice = ADVICE.get(short)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {advice}" if advice else ""))
