"""What several test rooms share: tiny models of every family, as safetensors directories and as GGUF files."""
