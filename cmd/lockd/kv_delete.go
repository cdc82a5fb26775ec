package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func kvDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a key, or all keys that begin with a prefix",
		ArgsUsage: "KEY",
		Description: "It is no error if there is none. " +
			"A locked key can be deleted: its holder loses the lock.",
		Flags: clientFlags(
			&cli.BoolFlag{Name: "recurse", Usage: "delete all keys that begin with KEY"},
			&cli.BoolFlag{Name: "all", Usage: "with --recurse: delete every key; KEY is left out"},
			&cli.Uint64Flag{Name: "cas", HideDefault: true,
				Usage: "delete it only if its ModifyIndex is `INDEX`"}),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if cmd.Bool("recurse") || cmd.Bool("all") {
				return deleteMany(ctx, cmd, c, args)
			}
			if _, err := operands(cmd, 1, 1); err != nil {
				return err
			}
			if err := checkKey(cmd, args[0]); err != nil {
				return err
			}
			cas := index(cmd, "cas")
			done, err := c.Delete(ctx, args[0], cas)
			return conflict(done, err, args[0], cas)
		}),
	}
}

// deleteMany deletes the keys that begin with the prefix in the arguments. Only --all deletes every
// key: a prefix may be empty because a variable is not set.
func deleteMany(
	ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
) error {
	prefix := prefixIn(args)
	switch {
	case cmd.IsSet("cas"):
		return usage(cmd, "both --recurse and --cas are given")
	case !cmd.Bool("recurse"):
		return usage(cmd, "--all goes with --recurse")
	case cmd.Bool("all") && prefix != "":
		return usage(cmd, "--all deletes every key, not those that begin with %q: leave one out",
			prefix)
	case cmd.Bool("all"):
		return c.DeletePrefix(ctx, "")
	}
	if _, err := operands(cmd, 1, 1); err != nil {
		return err
	}
	if prefix == "" {
		return usage(cmd, "KEY is empty, which is the prefix of every key: give --all too to "+
			"delete them all")
	}
	return c.DeletePrefix(ctx, prefix)
}
