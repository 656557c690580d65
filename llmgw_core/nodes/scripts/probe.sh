# probe.sh STATE LLAMACPP VLLM PYTHON…: everything that is asked of a node, in one go. Lines of
# KEY<TAB>VALUE; what can hang runs beside, with its output in files, so that nothing waits for it.

say() {
  printf '%s\t%s\n' "$1" "$2"
}

limited() { # SECONDS COMMAND…
  seconds=$1
  shift
  if [ -n "$has_timeout" ]; then timeout -k 2 "$seconds" "$@"; else "$@"; fi
}

job() { # NAME FUNCTION ARG…
  name=$1
  shift
  jobs="$jobs $name"
  {
    "$@"
    echo $? >"$work/$name.rc"
  } >"$work/$name.out" 2>"$work/$name.err" </dev/null &
  pids="$pids $!"
}

jobs_done() {
  for name in $jobs; do
    [ -s "$work/$name.rc" ] || return 1
  done
}

collect() {
  clock
  end=$((now + 2000))
  until jobs_done || [ "$now" -gt "$end" ]; do
    nap 0.05
    clock
  done
  for name in $jobs; do
    status=hung
    { read -r status <"$work/$name.rc"; } 2>/dev/null
    say "$name.status" "$status"
    for stream in out err; do
      while IFS= read -r line || [ -n "$line" ]; do
        say "$name.$stream" "$line"
      done 2>/dev/null <"$work/$name.$stream"
    done
  done
  # shellcheck disable=SC2086
  jobs_done || kill $pids 2>/dev/null
}

hardware() {
  say hostname "$(cat /proc/sys/kernel/hostname 2>/dev/null)"
  say uname "$(uname -sr 2>/dev/null)"
  say arch "$(uname -m 2>/dev/null)"
  say ports.ephemeral "$(cat /proc/sys/net/ipv4/ip_local_port_range 2>/dev/null)"
  while IFS= read -r line; do
    case $line in PRETTY_NAME=*) say os "${line#PRETTY_NAME=}" ;; esac
  done 2>/dev/null </etc/os-release
  while read -r key value; do
    case $key in Cpus_allowed_list:) say cpus.allowed "$value" ;; esac
  done 2>/dev/null </proc/self/status
  # by cat: these files answer nothing to a shell that reads byte by byte
  cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null | while read -r value; do
    say cpus.siblings "$value"
  done
  say nproc "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null)"
  while read -r key kb _; do
    case $key in MemTotal: | MemAvailable:) say "$key" "$kb" ;; esac
  done </proc/meminfo
  find_limits
  for q in $quotas; do
    say cpu.quota "$q"
  done
  memory_now
  say memory.limits "$limits"
}

reason_in() { # what a tool or the shell said -> prints its last part, which is the system's own words
  printf '%s' "${1##*: }" | tail -n 1
}

state_dir() {
  say home "${HOME:-}"
  if ! find_base "$1"; then
    say state "${path:-}"
    say state.there n
    say state.writable n
    say state.trouble "$(reason_in "$( (mkdir -p "$path" && cd "$path") 2>&1)")"
    base=
    return
  fi
  say state "$base"
  say state.there y
  try=$base/.probe.$$
  # in a shell of its own, since one that cannot write to a file ends at once in some of them
  if said=$( (printf '#!/bin/sh\nexit 0\n' >"$try") 2>&1); then
    say state.writable y
    chmod 700 "$try"
    if "$try" 2>/dev/null; then
      say state.executable y
    else
      say state.executable n
      noexec=y
    fi
  else
    say state.writable n
    say state.trouble "$(reason_in "$said")"
  fi
  rm -f "$try"
}

disk() {
  limited 10 df -Pk "$1"
}

nvidia() {
  command -v nvidia-smi >/dev/null || return 127
  limited 10 nvidia-smi --format=csv,noheader,nounits \
    --query-gpu=uuid,index,name,memory.total,memory.used,utilization.gpu,driver_version
}

rocm() {
  command -v rocm-smi >/dev/null || return 127
  limited 10 rocm-smi --showproductname --showuniqueid --showmeminfo vram --showuse --showdriverversion --json
}

amd_static() {
  command -v amd-smi >/dev/null || return 127
  limited 10 amd-smi static --json
}

amd_metric() {
  command -v amd-smi >/dev/null || return 127
  limited 10 amd-smi metric --json
}

pci() { # display controllers: "ADDRESS VENDOR VRAM_TOTAL VRAM_USED"
  for c in /sys/bus/pci/devices/*; do
    class='' vendor='' total='' used=''
    { read -r class <"$c/class"; } 2>/dev/null
    case $class in
      0x0300* | 0x0302* | 0x0380*) ;;
      *) continue ;;
    esac
    { read -r vendor <"$c/vendor"; } 2>/dev/null
    { read -r total <"$c/mem_info_vram_total"; } 2>/dev/null
    { read -r used <"$c/mem_info_vram_used"; } 2>/dev/null
    echo "${c##*/} $vendor ${total:--} ${used:--}"
  done
}

find_program() { # NAME -> $found: on PATH, or where the login shell would find it
  found=$(command -v "$1") && return
  command -v bash >/dev/null || return 1
  found=$(limited 5 bash -lc "command -v $1" 2>/dev/null </dev/null | tail -n 1)
  [ -x "$found" ]
}

usable() { # PATH: of a program that the configuration names; says why it cannot be run
  [ ! -d "$1" ] && [ -x "$1" ] && return
  if [ -d "$1" ]; then
    say unusable "$1 is a folder"
  elif [ -e "$1" ]; then
    say unusable "$1 may not be run (its mode, or a file system that is mounted noexec)"
  else
    say unusable "$1 is not there"
  fi
  return 1
}

ask_llama() { # PATH or =
  found=$1
  [ "$found" != = ] || find_program llama-server || return 127
  [ -x "$found" ] || return 127
  echo "$found"
  limited 10 "$found" --version 2>&1
}

packages() { # PYTHON: the engines it could import, without importing any
  echo "$1"
  (cd / && limited 10 "$1" -c 'import importlib.metadata as m
print(*(f"{n} {d.version}" for n in ("xllamacpp", "vllm") for d in m.distributions(name=n)), sep="\n")')
}

ask_vllm() { # PATH or =
  found=$1
  [ "$found" != = ] || find_program vllm || return 127
  [ -x "$found" ] || return 127
  echo "$found"
  python=
  {
    # asking vllm itself takes tens of seconds; its first lines say which Python it belongs to
    IFS= read -r line
    case $line in
      '#!'*python*) python=${line#??} ;;
      '#!/bin/sh')
        IFS= read -r line
        line=${line#*exec*[\'\" ]}
        line=${line#[\'\" ]}
        python=${line%%[\'\" ]*}
        ;;
    esac
  } 2>/dev/null <"$found"
  # shellcheck disable=SC2086
  set -- $python
  [ $# -eq 0 ] || [ ! -x "$1" ] || packages "$1" | tail -n +2
}

engines() { # LLAMACPP VLLM PYTHON…
  llamacpp=$1 vllm_path=$2
  shift 2
  [ "$llamacpp" = = ] || usable "$llamacpp" || llamacpp=
  [ "$vllm_path" = = ] || usable "$vllm_path" || vllm_path=
  # an engine's path may be a Python that can import it
  case ${llamacpp##*/} in
    python*) set -- "$llamacpp" "$@" && llamacpp== ;;
  esac
  case ${vllm_path##*/} in
    python*) set -- "$vllm_path" "$@" && vllm_path== ;;
  esac
  job llama ask_llama "$llamacpp"
  job vllm ask_vllm "$vllm_path"
  own=$base/engines/xllamacpp
  if [ -n "$base" ] && [ -e "$own/.ready" ]; then
    # its libraries cannot be loaded from there, although its Python is a link to somewhere else
    if [ -n "$noexec" ]; then
      say unusable "the engine in $own cannot be run from a file system that is mounted noexec"
    else
      set -- "$own/bin/python" "$@"
    fi
  fi
  n=0
  for python in "$@"; do
    [ -x "$python" ] || continue
    n=$((n + 1))
    job "python$n" packages "$python"
  done
}

main() {
  clock
  started=$now
  say clock "$(date +%s.%N 2>/dev/null)"
  jobs='' pids='' has_timeout='' noexec='' base=''
  timeout -k 1 5 true 2>/dev/null && has_timeout=y
  say boot "$boot"
  state_dir "$1"
  shift
  work=$(mktemp -d /dev/shm/llmgw-probe.XXXXXX 2>/dev/null || mktemp -d /tmp/llmgw-probe.XXXXXX 2>/dev/null)
  if [ -n "$work" ]; then
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP TERM PIPE
    # of probes that were killed
    find "${work%/*}" -maxdepth 1 -name 'llmgw-probe.*' -user "$(id -u)" -mmin +10 -exec rm -rf {} + 2>/dev/null
    job nvidia nvidia
    job rocm rocm
    job amd_static amd_static
    job amd_metric amd_metric
    job pci pci
    job disk disk "${base:-$path}"
    [ -z "${base:-}" ] || job weights list_weights
    for arg in "$@"; do
      shift
      if [ "$arg" = = ]; then set -- "$@" =; else expand "$(decode "$arg")" && set -- "$@" "$path"; fi
    done
    engines "$@"
  fi
  hardware
  [ -z "$work" ] || collect
  clock
  say took "$((now - started))"
}

main "$@"
exit
