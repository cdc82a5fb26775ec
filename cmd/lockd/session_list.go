package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
)

func sessionListCommand() *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list the sessions",
		ArgsUsage:   " ",
		Description: "ID, TTL, behavior, node and name; with --json everything.",
		Flags:       clientFlags(jsonFlag()),
		Action: withClient(0, 0, func(
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, _ []string,
		) error {
			sessions, _, err := c.Sessions(ctx, consulclient.Wait{})
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				if sessions == nil {
					sessions = []consulclient.SessionInfo{}
				}
				return writeJSON(cmd.Root().Writer, sessions)
			}
			rows := make([][]any, len(sessions))
			for i, s := range sessions {
				rows[i] = []any{s.ID, orNone(s.TTL), s.Behavior, s.Node, orNone(s.Name)}
			}
			return writeTable(cmd.Root().Writer, rows)
		}),
	}
}

// writeTable writes rows with their columns one below the other.
func writeTable(w io.Writer, rows [][]any) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(table, "\t")
			}
			fmt.Fprint(table, cell)
		}
		fmt.Fprintln(table)
	}
	return table.Flush() // has the errors of all writes
}

// orNone is what stands in a table for a text that may be empty.
func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
