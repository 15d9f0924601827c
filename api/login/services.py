"""The coordinator's services as routes get them: limited to the caller of the request."""

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends

from trainhall.api.context import CoordinatorDep
from trainhall.api.login.authentication import PrincipalDep
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.audit import AuditService
from trainhall.cluster.accounts.groups import GroupService
from trainhall.cluster.accounts.service import AccountService
from trainhall.cluster.accounts.users import UserService
from trainhall.cluster.alerts.service import AlertService
from trainhall.cluster.checkpoints.service import CheckpointService
from trainhall.cluster.coordinator import Coordinator
from trainhall.cluster.data_sets.service import DataService
from trainhall.cluster.environments.service import EnvironmentService
from trainhall.cluster.experiments.service import ExperimentService
from trainhall.cluster.jobs.code_store import CodeStore
from trainhall.cluster.jobs.gradients import GradientService
from trainhall.cluster.jobs.listing.saved_views import SavedViewService
from trainhall.cluster.jobs.service import JobService
from trainhall.cluster.jobs.source.code_files import JobCodeService
from trainhall.cluster.ledger.service import LedgerService
from trainhall.cluster.nodes.service import NodeService
from trainhall.cluster.outputs.service import OutputService
from trainhall.cluster.profiles.service import ProfileService
from trainhall.cluster.projects.service import ProjectService
from trainhall.cluster.queue.history import QueueHistoryService
from trainhall.cluster.reports.service import ReportService
from trainhall.cluster.runs.artifacts import RunArtifacts
from trainhall.cluster.runs.service import RunService
from trainhall.cluster.scheduling.queue import QueueService
from trainhall.cluster.scheduling.quota_service import QuotaService
from trainhall.cluster.secrets.service import SecretService
from trainhall.cluster.tunnels.service import TunnelService
from trainhall.cluster.what_if.service import WhatIfService

if TYPE_CHECKING:
    from trainhall.cluster.experiments.analyses import AnalysisService


class LimitedServices:
    """Services of the coordinator for one caller, by the kind of thing.

    Each service is limited when it is first used: most requests need one.
    """

    def __init__(self, coordinator: Coordinator, caller: Principal) -> None:
        self.caller = caller
        self.unlimited = coordinator
        """For what belongs to no project."""

    @cached_property
    def accounts(self) -> AccountService:
        return self.unlimited.accounts.limited_to(self.caller)

    @cached_property
    def alerts(self) -> AlertService:
        return self.unlimited.alerts.limited_to(self.caller)

    @cached_property
    def analyses(self) -> "AnalysisService":
        return self.unlimited.analyses.limited_to(self.caller)

    @cached_property
    def audit(self) -> AuditService:
        return self.unlimited.audit.limited_to(self.caller)

    @cached_property
    def checkpoints(self) -> CheckpointService:
        return self.unlimited.checkpoints.limited_to(self.caller)

    @cached_property
    def code(self) -> CodeStore:
        return self.unlimited.code.limited_to(self.caller)

    @cached_property
    def data(self) -> DataService:
        return self.unlimited.data.limited_to(self.caller)

    @cached_property
    def environments(self) -> EnvironmentService:
        return self.unlimited.environments.limited_to(self.caller)

    @cached_property
    def experiments(self) -> ExperimentService:
        return self.unlimited.experiments.limited_to(self.caller)

    @cached_property
    def gradients(self) -> GradientService:
        return self.unlimited.gradients.limited_to(self.caller)

    @cached_property
    def groups(self) -> GroupService:
        return self.unlimited.groups.limited_to(self.caller)

    @cached_property
    def job_code(self) -> JobCodeService:
        return self.unlimited.job_code.limited_to(self.caller)

    @cached_property
    def jobs(self) -> JobService:
        return self.unlimited.jobs.limited_to(self.caller)

    @cached_property
    def ledger(self) -> LedgerService:
        return self.unlimited.ledger.limited_to(self.caller)

    @cached_property
    def nodes(self) -> NodeService:
        return self.unlimited.nodes.limited_to(self.caller)

    @cached_property
    def outputs(self) -> OutputService:
        return self.unlimited.outputs.limited_to(self.caller)

    @cached_property
    def profiles(self) -> ProfileService:
        return self.unlimited.profiles.limited_to(self.caller)

    @cached_property
    def projects(self) -> ProjectService:
        return self.unlimited.projects.limited_to(self.caller)

    @cached_property
    def queue(self) -> QueueService:
        return self.unlimited.queue.limited_to(self.caller)

    @cached_property
    def queue_history(self) -> QueueHistoryService:
        return self.unlimited.queue_history.limited_to(self.caller)

    @cached_property
    def quotas(self) -> QuotaService:
        return self.unlimited.quotas.limited_to(self.caller)

    @cached_property
    def reports(self) -> ReportService:
        return self.unlimited.reports.limited_to(self.caller)

    @cached_property
    def run_artifacts(self) -> RunArtifacts:
        return self.unlimited.run_artifacts.limited_to(self.caller)

    @cached_property
    def runs(self) -> RunService:
        return self.unlimited.runs.limited_to(self.caller)

    @cached_property
    def secrets(self) -> SecretService:
        return self.unlimited.secrets.limited_to(self.caller)

    @cached_property
    def tunnels(self) -> TunnelService:
        return self.unlimited.tunnels.limited_to(self.caller)

    @cached_property
    def users(self) -> UserService:
        return self.unlimited.users.limited_to(self.caller)

    @cached_property
    def views(self) -> SavedViewService:
        return self.unlimited.views.limited_to(self.caller)

    @cached_property
    def what_if(self) -> WhatIfService:
        return self.unlimited.what_if.limited_to(self.caller)


async def get_services(coordinator: CoordinatorDep, principal: PrincipalDep) -> LimitedServices:
    return LimitedServices(coordinator, principal)


ServicesDep = Annotated[LimitedServices, Depends(get_services)]
