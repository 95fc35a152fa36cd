#!/bin/sh
# Makes a small repository with a spec and an agent that needs no key, and says what to type:
#     sh examples/spec/try.sh [FOLDER]
here=$(cd "$(dirname "$0")" && pwd)
python="$here/../../.venv/bin/python"
[ -x "$python" ] || python=python3
"$python" -c "import holdfast" 2>/dev/null || { echo "First \`make setup\` in $(cd "$here/../.." && pwd)." >&2; exit 1; }
exec "$python" "$here/make.py" "${1:-${TMPDIR:-/tmp}/holdfast-example-$$}"
