"""A small configuration."""

CONFIG = {
    "vocab_size": 13, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "rms_norm_eps": 1e-6, "rope_theta": 500.0, "tie_word_embeddings": True,
}  # fmt: skip
