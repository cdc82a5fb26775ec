package main

import (
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

func kvPutCommand() *cli.Command {
	return &cli.Command{
		Name:      "put",
		Usage:     "set a key",
		ArgsUsage: "KEY VALUE",
		Description: "A VALUE of - is read from standard input. " +
			"The lock of the key stays as it is.\n" +
			"A KEY or VALUE that begins with a dash comes after a --.",
		Flags: clientFlags(
			&cli.Uint64Flag{Name: "flags", Usage: "a `NUMBER` of your own, kept with the value"},
			&cli.Uint64Flag{Name: "cas", HideDefault: true, Usage: "set it only if its " +
				"ModifyIndex is `INDEX`; 0: if there is no such key"}),
		Action: withClient(2, 2, func(
			ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string,
		) error {
			if err := checkKey(cmd, args[0]); err != nil {
				return err
			}
			value := []byte(args[1])
			if args[1] == standard {
				var err error
				if value, err = readValue(cmd.Root().Reader); err != nil {
					return err
				}
			}
			pair := &api.KVPair{Key: args[0], Flags: cmd.Uint64("flags"), Value: value}
			cas := index(cmd, "cas")
			done, err := c.Put(ctx, pair, cas)
			return conflict(done, err, args[0], cas)
		}),
	}
}

// readValue reads a value, but no more than any lockd takes: the server may have a lower limit.
func readValue(r io.Reader) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(r, lockd.MaxValueSize+1))
	if len(value) > lockd.MaxValueSize {
		return nil, fmt.Errorf("kv put: the value has more than %d bytes", lockd.MaxValueSize)
	}
	return value, err
}

// index returns the value of a flag that is an index, or nil if it is not given.
func index(cmd *cli.Command, flag string) *uint64 {
	if !cmd.IsSet(flag) {
		return nil
	}
	value := cmd.Uint64(flag)
	return &value
}

// conflict returns errConflict for a write that --cas prevented. A nil cas means no --cas.
func conflict(done bool, err error, key string, cas *uint64) error {
	switch {
	case err != nil || done:
		return err
	case cas != nil && *cas == 0:
		return fmt.Errorf("%w: key %q exists, but --cas is 0", errConflict, key)
	case cas != nil:
		return fmt.Errorf("%w: key %q does not have the ModifyIndex %d, which --cas asks for",
			errConflict, key, *cas)
	}
	return fmt.Errorf("%w: the server refuses to write key %q", errConflict, key)
}
