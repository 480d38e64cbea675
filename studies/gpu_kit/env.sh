# Sourced by bash on the GPU machine: . gpu-kit/env.sh
kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python3 "$kit/install.py"
export PATH="$kit/env/bin:$PATH" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$kit/system/lib"
export PYTHONPATH="$kit${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; } 2>/dev/null
unset kit
