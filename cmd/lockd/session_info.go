package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func sessionInfoCommand() *cli.Command {
	return &cli.Command{
		Name:      "info",
		Usage:     "say what there is to know of a session",
		ArgsUsage: "ID",
		Flags:     clientFlags(jsonFlag()),
		Action: withClient(1, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if err := checkSessionID(cmd, args[0]); err != nil {
				return err
			}
			s, _, err := c.Session().Info(args[0], new(api.QueryOptions).WithContext(ctx))
			switch {
			case err != nil:
				return err
			case s == nil:
				return fmt.Errorf("%w: session %q", errNotFound, args[0])
			case cmd.Bool("json"):
				return writeJSON(cmd.Root().Writer, s)
			}
			checks := append(s.NodeChecks, s.Checks...)
			for _, check := range s.ServiceChecks {
				checks = append(checks, check.ID)
			}
			return writeTable(cmd.Root().Writer, [][]any{
				{"ID", s.ID},
				{"Name", s.Name},
				{"Node", s.Node},
				{"TTL", s.TTL},
				{"LockDelay", s.LockDelay},
				{"Behavior", s.Behavior},
				{"Checks", strings.Join(checks, " ")},
				{"CreateIndex", s.CreateIndex},
			})
		}),
	}
}
