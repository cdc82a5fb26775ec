package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
)

func kvDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a key, or all keys that begin with a prefix",
		ArgsUsage: "KEY",
		Description: "It is no error if there is none. " +
			"A locked key can be deleted: its holder loses the lock.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "recurse", Usage: "delete all keys that begin with KEY; " +
				"all there are, if it is empty"},
			&cli.Uint64Flag{Name: "cas", HideDefault: true,
				Usage: "delete it only if its ModifyIndex is `INDEX`"}),
		Action: withClient(1, 1, func(
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, args []string,
		) error {
			if !cmd.Bool("recurse") {
				if err := checkKey(cmd, args[0]); err != nil {
					return err
				}
				opts := consulclient.DeleteOptions{CAS: index(cmd, "cas")}
				done, err := c.Delete(ctx, args[0], opts)
				return conflict(done, err, args[0], opts.CAS)
			}
			if cmd.IsSet("cas") {
				return usage(cmd, "both --recurse and --cas are given")
			}
			return c.DeletePrefix(ctx, args[0])
		}),
	}
}
