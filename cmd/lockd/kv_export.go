package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// exported is a key in the form of consul kv export.
type exported struct {
	Key   string `json:"key"`
	Flags uint64 `json:"flags"`
	Value []byte `json:"value"`
}

func kvExportCommand() *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write keys as JSON, in the form of consul kv export",
		ArgsUsage: "[PREFIX]",
		Description: "It has keys, values and flags. lockd kv import reads it, " +
			"and so does consul kv import.\n" +
			"JSON has no room for a key that is not UTF-8: there is no export with one.",
		Flags: clientFlags(),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			entries, err := entriesUnder(ctx, c, args)
			if err != nil {
				return err
			}
			if err := checkText(ctx, c, entries); err != nil {
				return err
			}
			keys := make([]exported, len(entries))
			for i, e := range entries {
				keys[i] = exported{e.Key, e.Flags, e.Value}
				if e.Value == nil {
					keys[i].Value = []byte{}
				}
			}
			return writeJSON(cmd.Root().Writer, keys)
		}),
	}
}

// checkText refuses keys that are not UTF-8. The server's JSON has the replacement character in
// place of each byte that is not UTF-8, and so shows another key, which the server need not have.
func checkText(ctx context.Context, c *lockclient.Client, entries api.KVPairs) error {
	seen := make(map[string]bool)
	for _, e := range entries {
		if !strings.ContainsRune(e.Key, utf8.RuneError) {
			continue
		}
		pair, _, err := c.Get(ctx, e.Key, lockclient.Wait{})
		if err != nil {
			return err
		}
		if seen[e.Key] || pair == nil || pair.CreateIndex != e.CreateIndex {
			return fmt.Errorf("export: key %+q is not UTF-8 where it has \\ufffd, and JSON has no "+
				"room for it; export prefixes without it, or make a backup with GET /v1/snapshot",
				e.Key)
		}
		seen[e.Key] = true
	}
	return nil
}
