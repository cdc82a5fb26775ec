package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
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
			"and so does consul kv import.",
		Flags: clientFlags(),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, args []string,
		) error {
			entries, err := entriesUnder(ctx, c, args)
			if err != nil {
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
