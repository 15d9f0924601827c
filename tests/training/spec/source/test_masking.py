"""Secrets are masked where they are recognised, and code stays readable."""

import pytest

from trainhall.training.spec.source.masking import is_secret_name, mask_command, mask_text


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("HF_TOKEN", True),
        ("--api-key", True),
        ("parameters.db_password", True),
        ("WANDB_API_KEY", True),
        ("tokenizer", False),
        ("max_tokens", False),
        ("key", False),
        ("token_ids", False),
    ],
)
def test_names_of_secrets_are_known(name: str, is_secret: bool) -> None:
    assert is_secret_name(name) is is_secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("git@example.org:lab.git", "git@example.org:lab.git"),
        ("https://oauth2:abc@example.org/lab", "https://example.org/lab"),
        ("login hf_" + "a1" * 17, "login ***"),
        ('+  api_key="abcdefgh",', '+  api_key="***",'),
        ("+export HF_TOKEN=abc", "+export HF_TOKEN=***"),
        ("+max_tokens = 512", "+max_tokens = 512"),
        ('+tokenizer = load("gpt2")', '+tokenizer = load("gpt2")'),
        ("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n+x", "***\n+x"),
    ],
)
def test_text_is_masked(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_yaml_in_an_argument_is_masked() -> None:
    command = ["script.env={HF_TOKEN: abc, A: b}", 'script.env={"API_KEY": "abc"}', "max_tokens=5"]
    masked = ["script.env={HF_TOKEN: ***, A: b}", 'script.env={"API_KEY": "***"}', "max_tokens=5"]
    assert mask_command(command) == masked


def test_arguments_are_masked() -> None:
    command = ["train", "--hub-token", "abc", "--api-key=abc", "--token", "--lr", "0.1"]
    assert mask_command(command) == [
        "train", "--hub-token", "***", "--api-key=***", "--token", "--lr", "0.1",
    ]  # fmt: skip
