package main

import (
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

func sessionCommand() *cli.Command {
	return &cli.Command{
		Name:     "session",
		Category: atServer,
		Usage:    "look at sessions, and end them",
		Action:   noCommand,
		Commands: []*cli.Command{
			sessionListCommand(),
			sessionInfoCommand(),
			sessionDestroyCommand(),
		},
	}
}

// checkSessionID refuses a text that is no session's ID. A server says of any text that there is no
// such session.
func checkSessionID(cmd *cli.Command, text string) error {
	if _, err := lockd.ParseSessionID(text); err != nil {
		return usage(cmd, "session %s: %q is not a UUID", cmd.Name, text)
	}
	return nil
}
