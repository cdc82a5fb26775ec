package main

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"strings"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// fileID returns an ID of the file at the path. While the file exists, no other file has that ID,
// on this machine or on one with another machineID. The ID is a hash, and tells nothing else.
func fileID(path string) (string, error) {
	node, err := inode(path)
	if err != nil {
		return "", err
	}
	machine, err := machineID()
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(machine + " " + node))
	return hex.EncodeToString(hash[:]), nil
}

// machineID returns what tells this machine from others: on Linux a random ID that is made at each
// boot, which containers share with it, and elsewhere its name.
func machineID() (string, error) {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(id)), nil
	}
	return os.Hostname()
}

// sayFile makes every answer of lockd's own endpoints say which file the server has open: see
// lockclient.Client.Backup.
func sayFile(id string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/lockd/") {
			w.Header().Set(lockclient.FileHeader, id)
		}
		next.ServeHTTP(w, r)
	})
}
