package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func sessionDestroyCommand() *cli.Command {
	return &cli.Command{
		Name:      "destroy",
		Usage:     "end a session",
		ArgsUsage: "ID",
		Description: "Its locks are released, or their keys deleted, and nobody gets them for\n" +
			"its lock-delay. It is no error if it has ended.",
		Flags: clientFlags(),
		Action: withClient(1, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if err := checkSessionID(cmd, args[0]); err != nil {
				return err
			}
			return c.EndSession(ctx, args[0])
		}),
	}
}
