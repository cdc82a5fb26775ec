package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func kvGetCommand() *cli.Command {
	return &cli.Command{
		Name:      "get",
		Usage:     "write the value of a key",
		ArgsUsage: "KEY",
		Description: "It is written as it is, without a newline of its own.\n" +
			"With --json it is the entry: its indexes, flags, session, and the value in base64.",
		Flags: clientFlags(jsonFlag()),
		Action: withClient(1, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if err := checkKey(cmd, args[0]); err != nil {
				return err
			}
			pair, _, err := c.Get(ctx, args[0], lockclient.Wait{})
			switch {
			case err != nil:
				return err
			case pair == nil:
				return fmt.Errorf("%w: key %q", errNotFound, args[0])
			case cmd.Bool("json"):
				return writeJSON(cmd.Root().Writer, entry(*pair))
			}
			_, err = cmd.Root().Writer.Write(pair.Value)
			return err
		}),
	}
}
