"""From what a user asked for to a job: settings, plan, model, graph and task."""
