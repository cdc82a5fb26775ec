package main

import (
	"context"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func sessionListCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list the sessions",
		ArgsUsage:   " ",
		Description: "ID, TTL, behavior, node and name; with --json everything.",
		Flags:       clientFlags(jsonFlag()),
		Action: withClient(0, 0, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, _ []string,
		) error {
			sessions, _, err := c.Session().List(new(api.QueryOptions).WithContext(ctx))
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				return writeJSON(cmd.Root().Writer, sessions)
			}
			rows := make([][]any, len(sessions))
			for i, s := range sessions {
				rows[i] = []any{s.ID, s.TTL, s.Behavior, s.Node, s.Name}
			}
			return writeTable(cmd.Root().Writer, rows)
		}),
	}
}
