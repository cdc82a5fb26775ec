package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/consulclient"
)

// held is a lock that somebody holds.
type held struct {
	Key         string
	Session     string
	Name        string // of the session
	Node        string // of the session
	LockIndex   uint64
	ModifyIndex uint64
}

func locksCommand() *cli.Command {
	return &cli.Command{
		Name:      "locks",
		Category:  atServer,
		Usage:     "list the locks that are held, and by whom",
		ArgsUsage: "[PREFIX]",
		Description: "Key, session, and the node and name of that; with --json the indexes of " +
			"the key too.",
		Flags: clientFlags(jsonFlag()),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *consulclient.Client, args []string,
		) error {
			locks, err := locks(ctx, c, args)
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				return writeJSON(cmd.Root().Writer, locks)
			}
			rows := make([][]any, len(locks))
			for i, l := range locks {
				rows[i] = []any{l.Key, l.Session, orNone(l.Node), orNone(l.Name)}
			}
			return writeTable(cmd.Root().Writer, rows)
		}),
	}
}

func locks(ctx context.Context, c *consulclient.Client, args []string) ([]held, error) {
	entries, err := entriesUnder(ctx, c, args)
	if err != nil {
		return nil, err
	}
	// A session that ended in between has no name here.
	sessions, _, err := c.Sessions(ctx, consulclient.Wait{})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]consulclient.SessionInfo, len(sessions))
	for _, s := range sessions {
		byID[s.ID] = s
	}
	locks := []held{}
	for _, e := range entries {
		if e.Session != "" {
			s := byID[e.Session]
			locks = append(locks,
				held{e.Key, e.Session, s.Name, s.Node, e.LockIndex, e.ModifyIndex})
		}
	}
	return locks, nil
}
