package main

import (
	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"
)

// entry is a key as --json shows it: like a server, it leaves out the session of a free key.
type entry struct {
	Key         string
	CreateIndex uint64
	ModifyIndex uint64
	LockIndex   uint64
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	Namespace   string `json:",omitempty"`
	Partition   string `json:",omitempty"`
}

var _ = entry(api.KVPair{}) // they have the same fields

// checkKey refuses the empty key, which cannot exist.
func checkKey(cmd *cli.Command, key string) error {
	if key == "" {
		return usage(cmd, "kv %s: KEY is empty", cmd.Name)
	}
	return nil
}
