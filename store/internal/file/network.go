package file

import (
	"cmp"
	"fmt"
)

// checkPlace refuses a path on a file system on which the lock, or the mapped memory, cannot be
// trusted, as far as that can be recognised: for an existing file its own path, and for one to be
// created the path of its folder. A path about which the system gives no answer is accepted;
// opening it will tell more.
func checkPlace(path string, o Options) error {
	if o.AllowNetworkFS {
		return nil
	}
	find := networkFS
	if o.Hooks.NetworkFS != nil {
		find = o.Hooks.NetworkFS
	}
	if name := find(path); name != "" {
		return fmt.Errorf("%w: it is on %s, where the lock on a file cannot be trusted to keep "+
			"others out; put it on a local disk, or set Options.AllowNetworkFS", ErrInvalid, name)
	}
	return nil
}

// What each system says of a file system, and what that means for the lock. This code is in the
// package on every system, so that it can be tested on any.

// linuxNetworkName names a file system by its magic number, as statfs(2) returns it, if the lock
// cannot be trusted there. GFS2 and OCFS2 are not among them: their locks hold for the whole
// cluster, their memory is coherent, and a node that is lost is shut out before its locks are
// freed.
func linuxNetworkName(magic uint32) string {
	return map[uint32]string{
		// The server forgets a client's locks when it restarts or a lease runs out, and no client
		// is told; with nolock or local_lock they never leave the machine.
		0x6969: "NFS",
		// Locks are lost with the connection; with nobrl they stay on the machine.
		0x517b: "SMB", 0xff534d42: "SMB", 0xfe534d42: "SMB", // smbfs, cifs, smb2
		0x564c: "NCP", // ncpfs: locks stay on the machine
		// Locks stay on the machine unless it is mounted with posixacl and cache=none.
		0x01021997: "9p",
		0x786f4256: "vboxsf", // locks stay in the guest, mapped memory does not follow the host
		0xbacbacbc: "vmhgfs", // as vboxsf
		0x7c7c6673: "prl_fs", // as vboxsf
		// Anything may be behind it: sshfs, s3fs, GlusterFS, the folders of a virtual machine's
		// host. It does not say what, and keeps locks on the machine unless its program takes part.
		0x65735546: "FUSE",
		// Locks of a whole file may stay on the machine, and run out unseen.
		0x5346414f: "AFS", 0x6b414653: "AFS", // OpenAFS, kAFS
		0x73757245: "Coda", // works without its server, and settles conflicts later
		// A client that was cut off loses its locks, and may write what it cached.
		0x00c36400: "Ceph",
		0x0bd00bd0: "Lustre",   // locks stay on the machine with localflock, and fail without flock
		0x19830326: "BeeGFS",   // locks stay on the machine unless tuneUseGlobalFileLocks is set
		0x20030528: "OrangeFS", // has no locks but those that stay on the machine
	}[magic]
}

// mountLocal is MNT_LOCAL of sys/mount.h: the file system is stored on this machine.
const mountLocal = 0x1000

// darwinNetworkName returns the name of a file system, as statfs(2) returns it with its flags, if
// the lock cannot be trusted there.
func darwinNetworkName(name string, flags uint32) string {
	if flags&mountLocal == 0 { // nfs, smbfs, afpfs, webdav and whatever else knows itself remote
		return cmp.Or(name, "a file system without a name that is not local")
	}
	switch name {
	case "macfuse", "osxfuse", "fusefs": // a server may be behind it, whatever it says of itself
		return name
	case "AppleVirtIOFS", "virtiofs", "vmhgfs", "prl_fs": // the host's folders, in a guest
		return name
	}
	return ""
}

// driveRemote is DRIVE_REMOTE of fileapi.h.
const driveRemote = 4

// windowsNetworkName returns a name if a drive of this kind, as GetDriveTypeW returns it, is
// another machine's.
func windowsNetworkName(kind uintptr) string {
	if kind == driveRemote {
		return "a network drive"
	}
	return ""
}
