package file_test

import (
	"testing"

	"github.com/lockd/lockd/store/internal/file"
)

// Ensure that the file systems on which a lock cannot be trusted are known by their magic numbers
// of linux/magic.h and of their own headers, and that local and cluster ones are let through.
func TestNetworkName_Linux(t *testing.T) {
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
		if got := file.LinuxNetworkName(magic); got != want {
			t.Errorf("%#x: got %q, want %q", magic, got, want)
		}
	}
}

// Ensure that macOS's file systems are judged by whether they say that they are local, and by their
// names if they say so wrongly.
func TestNetworkName_Darwin(t *testing.T) {
	const local, others = 0x1000, 0x04000201 // MNT_LOCAL; MNT_MULTILABEL and the like
	for _, test := range []struct {
		name  string
		flags uint32
		want  string
	}{
		{"apfs", local, ""},
		{"apfs", local | others, ""},
		{"hfs", local, ""},
		{"msdos", local, ""},
		{"nfs", 0, "nfs"},
		{"smbfs", others, "smbfs"},
		{"afpfs", 0, "afpfs"},
		{"webdav", 0, "webdav"},
		{"something new", 0, "something new"},
		{"", 0, "a file system without a name that is not local"},
		{"macfuse", local, "macfuse"},
		{"macfuse", 0, "macfuse"},
		{"osxfuse", local, "osxfuse"},
		{"fusefs", local, "fusefs"},
		{"AppleVirtIOFS", local, "AppleVirtIOFS"},
		{"virtiofs", local, "virtiofs"},
		{"vmhgfs", local, "vmhgfs"},
		{"prl_fs", local, "prl_fs"},
	} {
		if got := file.DarwinNetworkName(test.name, test.flags); got != test.want {
			t.Errorf("%q, %#x: got %q, want %q", test.name, test.flags, got, test.want)
		}
	}
}

// Ensure that of fileapi.h's kinds of drives only the remote one is recognised.
func TestNetworkName_Windows(t *testing.T) {
	const remote, greatest = 4, 6
	for kind := range uintptr(greatest + 1) {
		want := ""
		if kind == remote {
			want = "a network drive"
		}
		if got := file.WindowsNetworkName(kind); got != want {
			t.Errorf("%d: got %q, want %q", kind, got, want)
		}
	}
}
