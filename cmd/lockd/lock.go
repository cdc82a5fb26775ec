package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// envSequencer has the sequencer of the lock, in the environment of the command that runs under it.
const envSequencer = "LOCKD_SEQUENCER"

// maxLimit is the largest limit of a semaphore that Session.Acquire takes.
const maxLimit = 1 << 20

func lockCommand() *cli.Command {
	afterKey := 1
	return &cli.Command{
		Name:      "lock",
		Category:  atServer,
		Usage:     "run a command while holding a lock, or a slot of a semaphore",
		ArgsUsage: "KEY -- CMD [ARG...]",
		Description: "CMD runs in a process group of its own, with " + envSequencer + " in its\n" +
			"environment; signals are passed on to the group. When CMD ends, what is left\n" +
			"of its group is ended, and the lock is given back.\n\n" +
			"If the lock is lost, or the session could not be renewed for two thirds of\n" +
			"its TTL, the group is told to end (SIGTERM) and then made to (SIGKILL),\n" +
			"before the session can end by its TTL. When the lock is taken away by force\n" +
			"the latter comes at once, unless a lock-delay leaves time. A longer TTL gives\n" +
			"more of it: a sixth. A CMD of another user, as by sudo, cannot be ended, and\n" +
			"goes on: let sudo run lockd, not lockd sudo.\n\n" +
			"With --shared, others that share it too run their commands beside CMD, and\n" +
			"nothing that takes the lock exclusively does. KEY stays. Who waits asks again\n" +
			"each second while the lock is shared, and is in no queue. A share that is\n" +
			"taken away is noticed within a fifth of the TTL. A Consul agent has exclusive\n" +
			"locks only: there --shared takes one of those, and says so.\n\n" +
			"If the server cannot be reached, or fails, while the lock is waited for, that is\n" +
			"said once, and the server asked again each second for as long as the session is\n" +
			"known to live.\n\n" +
			"With -n, KEY is the prefix of a semaphore, as of consul lock -n. All who use\n" +
			"it name the same limit, or 0 for the one that it has.\n" +
			"If standard input is a terminal, CMD's is empty: it could not read from it.\n" +
			"A CMD that opens the terminal itself, to ask for a password, is stopped by the\n" +
			"system, as by Ctrl-Z: the lock stays held, and Ctrl-C ends CMD.\n\n" +
			lockCodes,
		StopOnNthArg: &afterKey,
		Flags: clientFlags(
			&cli.IntFlag{Name: "n", HideDefault: true,
				Usage: "take one of `LIMIT` slots, in place of a lock; 0 for the limit it has"},
			&cli.BoolFlag{Name: "shared", Usage: "share the lock with others that share it"},
			&cli.BoolFlag{Name: "try", Usage: "give up at once if the lock is not to be had"},
			&cli.DurationFlag{Name: "timeout", HideDefault: true,
				Usage: "give up after the `TIME`, such as 30s"},
			&cli.DurationFlag{Name: "ttl", Value: 15 * time.Second,
				Usage: "how long the session lives without a renewal; servers want 10s to 24h"},
			&cli.DurationFlag{Name: "lock-delay", Value: lockd.DefaultLockDelay,
				Usage: "how long nobody gets the lock after it was lost; 0 for none"},
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the session (default: who runs what)"},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			args := cmd.Args().Slice()
			switch {
			case len(args) > 1 && args[1] == "--":
				args = append(args[:1], args[2:]...)
			case len(args) > 1 && strings.HasPrefix(args[1], "-"):
				// The parser may have dropped a -- before args[1], which then was meant as CMD.
				return inLock(usage(cmd, "%q comes after KEY: options come before it, and a CMD "+
					"that begins with a dash needs its path", args[1]))
			}
			return inLock(runLocked(ctx, cmd, args))
		},
	}
}

// locked is what lockd lock has to do.
type locked struct {
	key      string
	shared   bool // with others
	slot     bool // of a semaphore at the key, in place of the lock
	limit    int  // of the semaphore; 0: its own
	patience lockclient.Patience
	session  lockclient.SessionOptions
	command  *exec.Cmd
}

// runLocked takes the lock, runs the command, and releases the lock.
func runLocked(ctx context.Context, cmd *cli.Command, args []string) error {
	what, err := lockedOf(cmd, args)
	if err != nil {
		return err
	}
	c, err := client(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	s := newSignals(ending...)
	defer s.stop()
	waiting, endOfWait := context.WithCancelCause(ctx)
	defer endOfWait(nil)
	if d := cmd.Duration("timeout"); d > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(waiting, d, errTimeout)
		defer cancel()
	}
	var early *signalled // the signal that ended the wait
	waited := s.onFirst(func(one os.Signal) {
		early = &signalled{one}
		endOfWait(early)
	})
	k, lock, err := take(waiting, c, what)
	if waited(); early != nil && err == nil {
		err = errors.Join(early, giveBack(k, lock))
	}
	if err != nil {
		return advised(cmd, err)
	}
	if what.shared && !lock.Shared() {
		complain(cmd.Root().ErrWriter, "the server has no shared locks, as it has no "+
			"/v1/lockd/locks: key %q is locked exclusively, and nobody shares it", what.key)
	}
	what.command.Env = append(os.Environ(), envSequencer+"="+sequencer(k, lock))
	err = supervise(what.command, k, s)
	given := s.onFirst(func(os.Signal) {}) // the first signal only asks for what is being done
	back := giveBack(k, lock)
	given()
	_, hasEnded := errors.AsType[*exec.ExitError](err)
	switch {
	case back == nil:
	case !errors.Is(back, lockclient.ErrNotHeld):
		complain(cmd.Root().ErrWriter, "%q may not be given back: %v; it is free %s", what.key,
			back, what.freeAfter(k.ID()))
	case hasEnded || err == nil:
		return lostBefore(back)
	}
	return err
}

// freeAfter says when the lock or slot is free at the latest, if it cannot be released. Only the
// server knows for how much longer than its TTL the session lives.
func (w locked) freeAfter(session string) string {
	text := "at the latest when session " + session + " has ended, which has a TTL of " +
		w.session.TTL.String() + " and may be let live for longer"
	if delay := w.session.LockDelay; delay > 0 && !w.slot {
		text += ", and its lock-delay of " + delay.String() + " has passed"
	}
	return text
}

// lockedOf reads the command line.
func lockedOf(cmd *cli.Command, args []string) (locked, error) {
	what := locked{slot: cmd.IsSet("n"), limit: cmd.Int("n"), session: lockclient.SessionOptions{
		Name: cmd.String("name"), TTL: cmd.Duration("ttl"), LockDelay: cmd.Duration("lock-delay"),
		DeleteKeys: cmd.IsSet("n"),
	}}
	what.shared = cmd.Bool("shared")
	if cmd.Bool("try") {
		what.patience = lockclient.AtOnce
	}
	switch {
	case len(args) < 2:
		return what, usage(cmd, "an argument is missing, of: %s", cmd.ArgsUsage)
	case args[0] == "":
		return what, usage(cmd, "KEY is empty")
	case !utf8.ValidString(args[0]):
		// The transaction that takes the lock is JSON, and would take the lock of another key.
		return what, usage(cmd, "KEY %q is not UTF-8, so it cannot be locked", args[0])
	case what.limit < 0:
		return what, usage(cmd, "-n %d is below 0", what.limit)
	case what.limit > maxLimit:
		return what, usage(cmd, "-n %d is more than %d", what.limit, maxLimit)
	case what.shared && what.slot:
		return what, usage(cmd, "both --shared and -n are given: a slot is not shared")
	case what.slot && cmd.IsSet("lock-delay") && what.session.LockDelay > 0:
		return what, usage(cmd, "both -n and --lock-delay are given: a slot has no lock-delay")
	case cmd.Bool("try") && cmd.IsSet("timeout"):
		return what, usage(cmd, "both --try and --timeout are given")
	case cmd.IsSet("timeout") && cmd.Duration("timeout") <= 0:
		return what, usage(cmd, "--timeout %v is not above 0", cmd.Duration("timeout"))
	case what.session.TTL < time.Second:
		return what, usage(cmd, "--ttl %v is below 1s", what.session.TTL)
	case what.session.LockDelay < 0 || what.session.LockDelay > lockd.MaxLockDelay:
		return what, usage(cmd, "--lock-delay %v is not between 0 and %v", what.session.LockDelay,
			lockd.MaxLockDelay)
	}
	what.key = args[0]
	what.command = exec.Command(args[1], args[2:]...)
	what.command.Stdin = cmd.Root().Reader
	what.command.Stdout, what.command.Stderr = cmd.Root().Writer, cmd.Root().ErrWriter
	what.session.Retrying = func(err error) {
		complain(cmd.Root().ErrWriter, "lock: not acquired yet: %v; asking again each second", err)
	}
	if f, ok := cmd.Root().Reader.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		what.command.Stdin = nil
	}
	if what.session.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return what, err
		}
		what.session.Name = fmt.Sprintf("lockd lock on %s, process %d: %s", host, os.Getpid(),
			args[1])
	}
	return what, what.command.Err // there is no such command
}

// take makes a session and takes the lock with it, or a slot.
func take(
	ctx context.Context, c *lockclient.Client, what locked,
) (*lockclient.Keeper, *lockclient.Lock, error) {
	k, err := c.Keep(ctx, what.session)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: the session was not made: %w: %w", lockclient.ErrNotAcquired, err,
				context.Cause(ctx))
		}
		if refused, ok := errors.AsType[*lockclient.Error](err); ok &&
			strings.Contains(refused.Text, "Session TTL") {
			err = fmt.Errorf("the server does not take --ttl %v: %w", what.session.TTL, err)
		}
		return nil, nil, err
	}
	var lock *lockclient.Lock
	switch {
	case what.slot:
		lock, err = k.Acquire(ctx, what.key, what.limit, what.patience)
	case what.shared:
		lock, err = k.Share(ctx, what.key, what.patience)
	default:
		lock, err = k.Lock(ctx, what.key, what.patience)
	}
	if err != nil {
		_ = k.Close(ctx) // else it ends by its TTL
		if errors.Is(err, lockclient.ErrDelayed) {
			err = fmt.Errorf("%w; for that time, 15s by default, nobody gets a lock whose session "+
				"has ended; a longer --timeout, or no --try, waits for it", err)
		}
		return nil, nil, err
	}
	return k, lock, nil
}

// giveBack releases the lock and ends the session, even if a signal came. It tries for longer than
// a server takes to restart.
func giveBack(k *lockclient.Keeper, lock *lockclient.Lock) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if k.Err() == nil {
		err = lock.Unlock(ctx)
	} else {
		cancel() // there is nothing to release after a loss, and the server may be away
	}
	_ = k.Close(ctx) // else it ends by its TTL, and holds nothing after a release
	return err
}

// sequencer returns the sequencer of the lock. Its fence is the key's index when it was locked,
// which is between the indexes of the grants before and after.
func sequencer(k *lockclient.Keeper, lock *lockclient.Lock) string {
	pair := lock.Pair()
	id, err := lockd.ParseSessionID(k.ID())
	if err != nil {
		return ""
	}
	q := lockd.Sequencer{
		Key: pair.Key, Session: id, LockIndex: pair.LockIndex, Fence: pair.ModifyIndex,
	}
	if lock.Shared() {
		q.Mode = lockd.Shared
	}
	return q.String()
}

// errTimeout is the cause when --timeout has passed.
var errTimeout = errors.New("the time for it has passed")
