package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func kvListCommand() *cli.Command {
	return &cli.Command{
		Name:      "list",
		Usage:     "list keys",
		ArgsUsage: "[PREFIX]",
		Description: "One to a line, in order; with --json as entries, with their values.\n" +
			"A key that a terminal would act on is quoted, as in Go.",
		Flags: clientFlags(jsonFlag()),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			entries, err := entriesUnder(ctx, c, args)
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				shown := make([]entry, len(entries))
				for i, e := range entries {
					shown[i] = entry(*e)
				}
				return writeJSON(cmd.Root().Writer, shown)
			}
			for _, e := range entries {
				if _, err := fmt.Fprintln(cmd.Root().Writer, printed(e.Key)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// entriesUnder returns the entries under the prefix in the arguments, or all entries. The result is
// nil if there are none.
func entriesUnder(
	ctx context.Context, c *lockclient.Client, args []string,
) (api.KVPairs, error) {
	entries, _, err := c.List(ctx, prefixIn(args), lockclient.Wait{})
	return entries, err
}

// prefixIn returns the prefix in the arguments, or the empty one, which every key has.
func prefixIn(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}
