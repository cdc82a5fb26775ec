package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func locksCommand() *cli.Command {
	return &cli.Command{
		Name:      "locks",
		Category:  atServer,
		Usage:     "list the locks that are held, delayed or waited for, and by whom",
		ArgsUsage: "[PREFIX]",
		Description: "A line for each: key, held, session, node and name of that, and for how\n" +
			"long. Below it those who wait: key, waits, session, node, name, for how long;\n" +
			"and a key whose lock is free and delayed: key, delayed, and until when. With\n" +
			"--json the indexes and the fence too. A Consul agent tells who holds what, and\n" +
			"no more.",
		Flags: clientFlags(jsonFlag()),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			locks, err := c.Locks(ctx, prefixIn(args))
			if err != nil {
				return err
			}
			if cmd.Bool("json") {
				if locks == nil {
					locks = []lockclient.LockInfo{}
				}
				return writeJSON(cmd.Root().Writer, locks)
			}
			return writeLocks(cmd.Root().Writer, locks)
		}),
	}
}

// writeLocks writes what is known of each lock, and of each call that waits for it.
func writeLocks(w io.Writer, locks []lockclient.LockInfo) error {
	var rows [][]any
	row := func(key, what string, p lockclient.Party, when string) {
		rows = append(rows, []any{key, what, p.Session, p.Node, p.Name, when})
	}
	for _, l := range locks {
		if l.Session != "" {
			held := ""
			if !l.Since.IsZero() {
				held = rough(l.Held)
			}
			row(l.Key, "held", l.Party, held)
		}
		if !l.DelayedUntil.IsZero() {
			row(l.Key, "delayed", lockclient.Party{},
				"until "+l.DelayedUntil.UTC().Format(time.RFC3339))
		}
		for _, waiter := range l.Queue {
			row(l.Key, "waits", waiter.Party, rough(waiter.Waited))
		}
	}
	return writeTable(w, rows)
}

// rough returns a time as people want it: in whole seconds, if there are some.
func rough(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprint(d.Round(time.Millisecond))
	}
	return fmt.Sprint(d.Round(time.Second))
}
