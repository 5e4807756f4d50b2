#!/usr/bin/env bash
# Make the real parts that `make demo` and the tests need, below one cache folder, without root and without installing anything:
#
#   deploy/setup.sh uv           the tool that makes the environments     -> path of the program
#   deploy/setup.sh engine       this checkout, editable, with its tools  -> path of the environment
#   deploy/setup.sh ray          Ray in an environment of its own         -> path of the environment
#   deploy/setup.sh prometheus   Prometheus 3, promtool, Alertmanager     -> path of the folder of programs
#   deploy/setup.sh clean        removes all of it
#
# Paths go to stdout, one a line in the order asked for; progress goes to stderr. What is there already costs nothing.
#
# ENGINE_CACHE    where everything lies (default ~/.cache/ray-alert-engine)
# PYTHON          the interpreter to use (default python3.11, else python3)
# PROMETHEUS_DIR  a folder with your own prometheus and promtool: nothing is fetched then
set -euo pipefail

ray_version=2.60.0
oldest_uv=0.5.0
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${ENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ray-alert-engine}
export UV_CACHE_DIR=${UV_CACHE_DIR:-$cache/uv-cache}   # so that `clean` leaves nothing behind

say() { printf '%s\n' "$*" >&2; }
die() { say "setup: $*"; exit 1; }

find_python() {
  local name
  for name in ${PYTHON:-python3.11 python3}; do
    # The interpreter below pyenv's shims and below an active environment: those may go away, the cache stays.
    "$name" -c 'import sys; assert sys.version_info >= (3, 11); print(sys._base_executable)' 2>/dev/null && return
  done
  die "Python 3.11 or newer is needed and was not found. Install it (Debian 12: apt-get install python3) or set PYTHON."
}

# make NAME FOLDER FUNCTION: run FUNCTION to fill FOLDER, once. A folder counts only with its stamp, which is written last,
# so a killed set-up leaves nothing that is taken for whole; the lock makes a second set-up wait for the first.
make_once() {
  local name=$1 folder=$2 fill=$3 began=$SECONDS log=$2.log
  mkdir -p "$(dirname "$folder")"
  exec 9>"$folder.lock"
  flock -n 9 || { say "$name: another set-up is at work, waiting"; flock 9; }
  if [[ -e $folder/.complete ]]; then
    say "$name: ready"
  else
    say "$name: installing ..."
    rm -rf "$folder"
    # A subshell that is not part of a condition: otherwise bash would switch `set -e` off inside it.
    set +e
    (set -e; "$fill" "$folder") >"$log" 2>&1 9>&-
    local status=$?
    set -e
    if ((status)); then
      tail -n 15 "$log" >&2
      die "$name could not be installed (whole output: $log). $4"
    fi
    touch "$folder/.complete"
    say "$name: installed in $((SECONDS - began)) s"
  fi
  exec 9>&-
}

# --- apt without root ------------------------------------------------------------------------------------------------

# private_sources FROM TO FOLDER: the machine's own apt sources of suite FROM (or `stable`), rewritten for suite TO.
private_sources() {
  local from=$1 to=$2 folder=$3 file
  for file in /etc/apt/sources.list.d/*.sources; do
    [[ -e $file ]] || continue
    awk -v RS= -v ORS='\n\n' -v from="$from" -v to="$to" '
      $0 ~ "(^|\n)Suites:([^\n]*[ \t])?(" from "|stable)([ \t\n]|$)" {
        gsub(/(^|\n)Suites:[^\n]*/, "\nSuites: " to); gsub(/(^|\n)Types:[^\n]*/, "\nTypes: deb"); sub(/^\n+/, ""); print
      }' "$file" >"$folder/$(basename "$file")"
  done
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE "s#^[[:space:]]*(deb[[:space:]]+(\[[^]]*\][[:space:]]+)?[^[:space:]]+[[:space:]]+)($from|stable)([[:space:]])#\1$to\4#p" \
      >"$folder/machine.list" || true
}

# unpack_debs SUITE FOLDER PACKAGE...: unpack packages of a suite below FOLDER/root, with an apt state of our own.
unpack_debs() {
  local suite=$1 folder=$2 deb apt=$2/apt
  shift 2
  mkdir -p "$apt"/{lists/partial,cache/archives/partial,etc}
  : >"$apt/status"
  private_sources "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" "$suite" "$apt/etc"
  local options=(-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/etc" -o Dir::State="$apt"
    -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache"
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none)
  # A third party's source may have no such suite. That is an error of update, and of no interest if the download works.
  apt-get "${options[@]}" update || say "some sources have no suite $suite"
  (cd "$apt" && apt-get "${options[@]}" download "$@") || return 1
  for deb in "$apt"/*.deb; do dpkg-deb -x "$deb" "$folder/root"; done
  rm -rf "$apt"
}

# --- uv --------------------------------------------------------------------------------------------------------------

# Set the array `pip` to a pip that runs: the machine's, that of a fresh environment, or the one in Debian's wheel package.
find_pip() {
  local folder=$1
  if "$python" -m pip --version >/dev/null 2>&1; then
    pip=("$python" -m pip)
  elif "$python" -c 'import ensurepip' 2>/dev/null && "$python" -m venv "$folder/venv"; then
    pip=("$folder/venv/bin/python" -m pip)
  else
    unpack_debs "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$folder" python3-pip-whl
    pip=(env "PYTHONPATH=$(echo "$folder"/root/usr/share/python-wheels/pip-*.whl)" "$python" -m pip)
  fi
}

fill_uv() {
  local folder=$1 pip
  mkdir -p "$folder"
  find_pip "$folder"
  "${pip[@]}" install --disable-pip-version-check --target "$folder/lib" "uv>=$oldest_uv"
  # uv does not read pip's configuration: what is set there is looked up at run time, with the same pip.
  printf '%q ' "${pip[@]}" >"$folder/pip"
  "$folder/lib/bin/uv" --version
}

find_uv() {
  local found
  if found=$(command -v uv) && "$python" - "$oldest_uv" "$(uv --version 2>/dev/null | cut -d' ' -f2)" <<<'
import sys
oldest, found = ([int(part) for part in text.split(".")[:2]] for text in sys.argv[1:])
sys.exit(found < oldest)' 2>/dev/null; then
    uv=$found
    return
  fi
  local folder=$cache/uv-$python_version
  make_once uv "$folder" fill_uv 'No network? Install uv yourself (it is used from PATH), or set PIP_INDEX_URL to a mirror.'
  uv=$folder/lib/bin/uv
}

pip_setting() {
  local recorded=$cache/uv-$python_version/pip
  if [[ -e $recorded ]]; then
    bash -c "$(<"$recorded") config get global.$1" 2>/dev/null || true
  else
    "$python" -m pip config get "global.$1" 2>/dev/null || true
  fi
}

# Let uv ask the index and trust the certificates that pip is set to; only for this run, written nowhere.
follow_pip() {
  local index certificates
  if [[ -z ${UV_INDEX_URL:-}${UV_DEFAULT_INDEX:-} ]]; then
    index=${PIP_INDEX_URL:-$(pip_setting index-url)}
    [[ -z $index ]] || export UV_DEFAULT_INDEX=$index
  fi
  if [[ -z ${SSL_CERT_FILE:-} ]]; then
    certificates=${PIP_CERT:-$(pip_setting cert)}
    [[ -z $certificates ]] || export SSL_CERT_FILE=$certificates
  fi
}

# --- environments ----------------------------------------------------------------------------------------------------

no_network='No network? Set PIP_INDEX_URL to a mirror that answers, or try again: what was fetched is kept.'

# Bytecode is compiled here, once: a dozen processes of Ray that all compile at their first start miss Ray's own deadlines.
fill_engine() {
  "$uv" venv --python "$python" "$1"
  VIRTUAL_ENV=$1 "$uv" pip install --compile-bytecode --editable "$repo[dev,robusta]"
}

fill_ray() {
  "$uv" venv --python "$python" "$1"
  VIRTUAL_ENV=$1 "$uv" pip install --compile-bytecode "ray[default]==$ray_version"
}

# --- Prometheus ------------------------------------------------------------------------------------------------------

is_prometheus_3() {
  local major
  major=$("$1" --version 2>&1 | sed -nE 's/^prometheus, version ([0-9]+)\..*/\1/p')
  [[ -n $major ]] && ((major >= 3))
}

fill_prometheus() {
  local folder=$1 program
  command -v apt-get >/dev/null || { say 'there is no apt-get here'; return 1; }
  for suite in testing forky; do
    rm -rf "$folder"
    unpack_debs "$suite" "$folder" prometheus promtool prometheus-alertmanager && break
  done
  [[ -d $folder/root ]] || return 1
  mkdir "$folder/bin"
  for program in prometheus promtool prometheus-alertmanager amtool; do
    mv "$folder/root/usr/bin/$program" "$folder/bin/${program#prometheus-}"
  done
  rm -rf "$folder/root"
  "$folder/bin/prometheus" --version
  is_prometheus_3 "$folder/bin/prometheus" || { say 'Debian testing gave a Prometheus older than 3'; return 1; }
}

# --- the parts -------------------------------------------------------------------------------------------------------

part_uv() { find_uv; echo "$uv"; }

part_engine() {
  [[ -e $repo/pyproject.toml ]] || die "$repo/pyproject.toml is missing: run this from a checkout."
  # Editable, so the environment belongs to one checkout; what is in it follows from pyproject.toml and the interpreter.
  local key folder
  key=$({ echo "$repo $python $python_version"; cat "$repo/pyproject.toml"; } | sha256sum | cut -c1-12)
  folder=$cache/engine-$key
  [[ -e $folder/.complete ]] || { find_uv; follow_pip; }
  make_once engine "$folder" fill_engine "$no_network"
  echo "$folder"
}

part_ray() {
  local folder=$cache/ray-$ray_version-$python_version
  [[ -e $folder/.complete ]] || { find_uv; follow_pip; }
  make_once "ray $ray_version" "$folder" fill_ray "$no_network"
  echo "$folder"
}

part_prometheus() {
  local folder=${PROMETHEUS_DIR:-}
  if [[ -z $folder ]]; then
    make_once prometheus "$cache/prometheus" fill_prometheus \
      'It comes from Debian testing. No network, or no Debian? Set PROMETHEUS_DIR to a folder with prometheus and promtool, 3.0 or newer.'
    echo "$cache/prometheus/bin"
    return
  fi
  [[ -x $folder/prometheus && -x $folder/promtool ]] || die "PROMETHEUS_DIR=$folder has no prometheus and promtool in it."
  is_prometheus_3 "$folder/prometheus" || die "$folder/prometheus is older than 3.0: the rules are checked against Prometheus 3."
  say "prometheus: ready (PROMETHEUS_DIR)"
  echo "$folder"
}

clean() {
  # Only what we made: ENGINE_CACHE may name a folder that holds more than ours.
  rm -rf "$cache"/{uv,engine,ray}-* "$cache"/prometheus{,.lock,.log} "$cache"/uv-cache
  rmdir "$cache" 2>/dev/null || true
  say "removed $cache"
}

(($#)) || die 'say what to set up: deploy/setup.sh uv|engine|ray|prometheus ...'
if [[ $1 == clean ]]; then
  clean
  exit
fi
python=$(find_python)
python_version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
for part in "$@"; do
  case $part in
    uv | engine | ray | prometheus) "part_$part" ;;
    *) die "there is no part '$part': uv, engine, ray or prometheus." ;;
  esac
done
