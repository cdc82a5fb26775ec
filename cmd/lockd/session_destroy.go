package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
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
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, args []string,
		) error {
			// A server says of any text that no such session is left.
			if _, err := lockd.ParseSessionID(args[0]); err != nil {
				return usage(cmd, "session destroy: %w", err)
			}
			return c.Destroy(ctx, args[0])
		}),
	}
}
