#!/bin/sh
# Usage: generate.sh PROGRAM DIR. Makes what a release has beside the program: manual pages and completions.
set -eu
"$1" man "$2/man"
gzip -9nf "$2"/man/*.1
mkdir -p "$2/completions"
"$1" completion bash >"$2/completions/relay.bash"
"$1" completion zsh >"$2/completions/_relay"
"$1" completion fish >"$2/completions/relay.fish"
"$1" completion powershell >"$2/completions/relay.ps1"
