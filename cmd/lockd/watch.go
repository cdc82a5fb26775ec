package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// change is one line of the watch.
type change struct {
	Index  uint64
	Change string // present, put, locked, released or deleted
	Key    string
	Entry  *entry `json:",omitempty"` // none of a key that was deleted
}

func watchCommand() *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Category:  atServer,
		Usage:     "write a line for each key, or each with a prefix, and when it changes",
		ArgsUsage: "[PREFIX]",
		Description: "First a line for each key that is present; then one for each that has\n" +
			"changed since it was told: index, what it is (present, put, locked, released\n" +
			"or deleted), key and session. With --json each line is an object that also\n" +
			"has the entry. The last state is always told; changes of a key that come at\n" +
			"once may be told as one, and a key that is made and deleted at once not at all.\n" +
			"While the server is away it is asked again every second, for what has changed\n" +
			"meanwhile.",
		Flags: clientFlags(jsonFlag()),
		Action: withClient(0, 1, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			w := &watcher{out: cmd.Root().Writer, complaints: cmd.Root().ErrWriter,
				json: cmd.Bool("json")}
			return w.watch(ctx, c, prefixIn(args))
		}),
	}
}

// watcher writes what differs from one read to the next.
type watcher struct {
	out        io.Writer
	complaints io.Writer
	json       bool
	known      map[string]entry // by identity; nil before the first read
}

// watch returns if ctx ends, if the first read fails, or if a write fails.
func (w *watcher) watch(ctx context.Context, c *lockclient.Client, prefix string) error {
	const longPoll, pause = time.Minute, time.Second
	wait := lockclient.Wait{}
	for {
		entries, index, err := c.List(ctx, prefix, wait)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && w.known == nil:
			return err
		case err != nil:
			complain(w.complaints, "%v; asking again", err)
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			wait = lockclient.Wait{}
			continue
		}
		if err := w.tell(entries, index); err != nil {
			return err
		}
		if index < wait.Index { // indexes began anew
			index = 0
		}
		wait = lockclient.Wait{Index: index, For: longPoll}
	}
}

// tell writes how the entries differ from those before, in the order of the indexes.
func (w *watcher) tell(entries api.KVPairs, index uint64) error {
	var changes []change
	now := make(map[string]entry, len(entries))
	for _, pair := range entries {
		e := entry(*pair)
		id := identity(e)
		now[id] = e
		was, known := w.known[id]
		if known && reflect.DeepEqual(was, e) { // the same indexes do not do: they may begin anew
			continue
		}
		what := "put"
		switch {
		case w.known == nil:
			what = "present"
		case e.Session != was.Session && e.Session != "":
			what = "locked"
		case e.Session != was.Session:
			what = "released"
		}
		changes = append(changes, change{e.ModifyIndex, what, e.Key, &e})
	}
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		if _, there := now[id]; !there {
			changes = append(changes, change{index, "deleted", w.known[id].Key, nil})
		}
	}
	w.known = now
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.Index, b.Index) })
	for _, ch := range changes {
		if err := w.write(ch); err != nil {
			return err
		}
	}
	return nil
}

// identity tells an entry from the others: by its key, and if that has the replacement character by
// its CreateIndex too, because the server's JSON shows keys that are not UTF-8 alike.
func identity(e entry) string {
	if strings.ContainsRune(e.Key, utf8.RuneError) {
		return fmt.Sprint(e.Key, " ", e.CreateIndex)
	}
	return e.Key
}

func (w *watcher) write(ch change) error {
	if w.json {
		e := json.NewEncoder(w.out)
		e.SetEscapeHTML(false)
		return e.Encode(ch)
	}
	session := ""
	if ch.Entry != nil {
		session = ch.Entry.Session
	}
	_, err := fmt.Fprintf(w.out, "%d\t%s\t%s\t%s\n", ch.Index, ch.Change, printed(ch.Key),
		cell(session))
	return err
}
