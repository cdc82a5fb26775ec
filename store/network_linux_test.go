package store_test

import (
	"path/filepath"
	"testing"

	"github.com/lockd/lockd/store"
)

// Ensure that the file systems on which a lock cannot be trusted are known by their magic numbers
// of linux/magic.h and of their own headers, and that local and cluster ones are let through.
func TestNetworkName(t *testing.T) {
	for magic, want := range map[uint32]string{
		0x00006969: "NFS",
		0x0000517b: "SMB",
		0xff534d42: "SMB", // negative where the field is of 32 bits
		0xfe534d42: "SMB",
		0x0000564c: "NCP",
		0x01021997: "9p",
		0x786f4256: "vboxsf",
		0xbacbacbc: "vmhgfs",
		0x7c7c6673: "prl_fs",
		0x65735546: "FUSE",
		0x5346414f: "AFS",
		0x6b414653: "AFS",
		0x73757245: "Coda",
		0x00c36400: "Ceph",
		0x0bd00bd0: "Lustre",
		0x19830326: "BeeGFS",
		0x20030528: "OrangeFS",

		0x00000000: "",
		0x0000ef53: "", // ext4
		0x58465342: "", // XFS
		0x9123683e: "", // btrfs
		0xf2f52010: "", // F2FS
		0x2fc12fc1: "", // ZFS
		0xca451a4e: "", // bcachefs
		0x01021994: "", // tmpfs
		0x794c7630: "", // overlay
		0x00004d44: "", // FAT
		0x5346544e: "", // NTFS
		0x01161970: "", // GFS2
		0x7461636f: "", // OCFS2
	} {
		if got := store.NetworkName(magic); got != want {
			t.Errorf("%#x: got %q, want %q", magic, got, want)
		}
	}
}

// Ensure that the system is asked: it knows /proc for what it is, and nothing of what is not there.
func TestNetworkFS_Local(t *testing.T) {
	for _, path := range []string{"/proc", filepath.Join(t.TempDir(), "none")} {
		if got := store.NetworkFS(path); got != "" {
			t.Errorf("%s: got %q", path, got)
		}
	}
}
