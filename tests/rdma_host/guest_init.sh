#!/bin/bash
# The first process of a virtual RDMA host: mounts, makes the network and the RDMA device, runs the
# command that lies in its folder, and leaves its exit status there.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc p /proc
told() { sed -n "s/.*\bvm_$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
folder=$(told folder) address=$(told address) driver=$(told driver) interface=$(told interface)
delay=$(told delay) loss=$(told loss) reorder=$(told reorder)

# The machine's files below, what is written here in memory above them.
mount -t tmpfs t /mnt
mkdir /mnt/upper /mnt/work /mnt/root
root=/mnt/root
mount -t overlay o $root -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work
mount -t proc p $root/proc
mount -t sysfs s $root/sys
mount -t devtmpfs d $root/dev
mkdir -p $root/dev/pts $root/dev/shm "$root$folder"
mount -t devpts -o ptmxmode=666 p $root/dev/pts
mount -t tmpfs s $root/dev/shm
mount -t tmpfs r $root/run
mount -t hostfs h "$root$folder" -o "$folder"
mapfile -d '' -t shared <"$folder/shared"
for each in "${shared[@]}"; do
  mkdir -p "$root$each"
  mount -t hostfs h "$root$each" -o "$each"
done
ln -sf /proc/self/fd $root/dev/fd
# perftest wants the line "cpu MHz", which this kernel's own file lacks.
mount --bind "$folder/cpuinfo" $root/proc/cpuinfo

# Programs ask for it: Open MPI's launcher does not start without.
name=rdma${address##*.}
echo "$name" >/proc/sys/kernel/hostname
echo "$address $name" >>$root/etc/hosts

network() {
  ip link set lo up
  if [ "$interface" = veth0 ]; then
    ip link add veth0 type veth peer name veth1 &&
      ip link set veth0 mtu 9000 && ip link set veth1 mtu 9000 up
  fi && ip addr add "$address/24" dev "$interface" && ip link set "$interface" up &&
    rdma link add "${driver}0" type "$driver" netdev "$interface" &&
    tc qdisc add dev "$interface" root netem limit 100000 delay "$delay" loss "$loss" \
      ${reorder:+reorder "$reorder"}
}
# What was sent may still wait in a slow link's queue, and would go with the host. It stays there
# where the other host has gone.
drain() {
  for _ in $(seq 40); do
    tc -s qdisc show dev "$interface" | grep -q "backlog 0b 0p" && return
    sleep 0.05
  done
}
run() {
  ulimit -l unlimited
  ulimit -n 65536
  mapfile -d '' -t words <"$1/words"
  mapfile -d '' -t environment <"$1/environment"
  cd "$(cat "$1/cwd")" || exit 126
  # A session of its own: bash is no controlling process of the terminals.
  setsid --wait env -i "${environment[@]}" "${words[@]}" </dev/null >/dev/tty1 2>/dev/tty2
}
export -f run
# Output as it is: no carriage returns.
stty -F /dev/tty1 -opost
stty -F /dev/tty2 -opost
if why=$(network 2>&1); then
  # shellcheck disable=SC2016 # the shell inside expands it
  chroot $root /bin/bash -c 'run "$1"' run "$folder"
  echo $? >"$root$folder/status"
  drain
else
  echo "$why" >"$root$folder/refused"
fi
sync
busybox poweroff -f
