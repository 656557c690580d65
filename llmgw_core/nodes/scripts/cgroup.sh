# cgroup.sh: the limits that cgroups, v1 or v2, set on what runs here.

each_level() { # FUNCTION MOUNT PATH: calls it for the cgroup and all above it
  level=$3
  while [ -n "$2" ]; do
    [ ! -d "$2$level" ] || "$1" "$2$level"
    [ -n "$level" ] && [ "$level" != / ] || break
    level=${level%/*}
  done
}

one_value() { # FILE -> $value, empty where there is none
  value=
  { read -r value _ <"$1"; } 2>/dev/null
}

inactive() { # memory.stat KEY -> $value: page cache that gives way at once
  value=
  while read -r key number _; do
    if [ "$key" = "$2" ]; then
      value=$number
      break
    fi
  done 2>/dev/null <"$1"
}

memory_v2() { memory_level "$1/memory.max" "$1/memory.current" "$1/memory.stat" inactive_file; }

memory_v1() {
  memory_level "$1/memory.limit_in_bytes" "$1/memory.usage_in_bytes" "$1/memory.stat" total_inactive_file
}

memory_level() { # LIMIT USAGE STAT KEY: keeps the tightest in m_limit m_usage m_stat m_key
  one_value "$1"
  case $value in
    # "max", or v1's way to say so
    '' | *[!0-9]* | ???????????????????*) return ;;
  esac
  if [ -z "$m_limit" ] || [ "$value" -lt "$m_limit" ]; then
    m_limit=$value m_usage=$2 m_stat=$3 m_key=$4
  fi
}

cpu_v2() {
  { read -r quota period <"$1/cpu.max"; } 2>/dev/null && say_cpu
}

cpu_v1() {
  one_value "$1/cpu.cfs_quota_us"
  quota=$value
  one_value "$1/cpu.cfs_period_us"
  period=$value
  say_cpu
}

say_cpu() {
  case $quota in
    '' | max | -*) ;;
    *) quotas="$quotas $quota/$period" ;;
  esac
}

find_limits() { # -> m_limit …, and quotas: "QUOTA/PERIOD …"
  m_limit='' m_usage='' m_stat='' m_key='' quotas=''
  two='' mem='' cpu=''
  while read -r _ mount type options _; do
    case $type in
      cgroup2) two=$mount ;;
      cgroup)
        case ,$options, in *,memory,*) mem=$mount ;; esac
        case ,$options, in *,cpu,*) cpu=$mount ;; esac
        ;;
    esac
  done </proc/mounts
  while IFS=: read -r number controllers place; do
    [ "$number" != 0 ] || {
      each_level memory_v2 "$two" "$place"
      each_level cpu_v2 "$two" "$place"
    }
    case ,$controllers, in *,memory,*) each_level memory_v1 "$mem" "$place" ;; esac
    case ,$controllers, in *,cpu,*) each_level cpu_v1 "$cpu" "$place" ;; esac
  done 2>/dev/null </proc/self/cgroup
}

memory_now() { # -> "LIMIT USAGE INACTIVE" in bytes of the tightest level, or nothing
  limits=
  [ -n "$m_limit" ] || return 0
  one_value "$m_usage"
  usage=$value
  inactive "$m_stat" "$m_key"
  limits="$m_limit ${usage:--} ${value:--}"
}
